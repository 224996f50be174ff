"""Images with labels: one row type, one reader for each form, one label rule, for every verb."""
