"""Cases in processes of their own: the sandbox, its supervisor and their children. It knows neither half."""
