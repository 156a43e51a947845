"""What tool servers and websites share: rows and sessions in SQLite, the API's envelope, answers and errors, recurrence rules."""
