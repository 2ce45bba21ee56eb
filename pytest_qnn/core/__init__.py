"""What every rule, target and half shares: verdicts, rules, the search. It knows neither half."""
