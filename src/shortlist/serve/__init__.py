"""The server: a photo in, a short list with similar photos out. HTTP and the page; no machine learning."""
