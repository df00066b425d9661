"""The redactor: the forms of a value, the streaming matcher, the guessing budget. Pure."""
