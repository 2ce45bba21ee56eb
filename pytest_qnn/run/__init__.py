"""The only room that touches a target: Case -> Trace."""
