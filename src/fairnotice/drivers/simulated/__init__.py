"""A machine room in memory: what a test looks at, and what `fairnotice up` runs on a laptop."""
