"""ALFWorld: household tasks in text. Game files, rules, generated games, and the environments that play them."""
