"""The sections of the page: each file measures one, the template of the same name shows it."""
