"""Every situation, in the order in which they are reported."""

from fairnotice.testing.conform import (
    situations_events,
    situations_faults,
    situations_names,
    situations_network,
    situations_polling,
)

SITUATIONS = {
    one.name: one
    for part in (
        situations_polling,
        situations_events,
        situations_names,
        situations_faults,
        situations_network,
    )
    for one in part.SITUATIONS
}
