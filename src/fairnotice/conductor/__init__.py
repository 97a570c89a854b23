"""The one impure loop: decide, make durable, apply, tell the followers, carry out, answer."""
