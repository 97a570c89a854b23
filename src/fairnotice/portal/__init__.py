"""The web page that an operator keeps open: what is announced and under way, and what may be done.

Pages are drawn here, from the rows; what is done goes through the native API, as for everybody.
"""
