"""What an endpoint answered, kept in a file and served again. Of the standard library alone."""
