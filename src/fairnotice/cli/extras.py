"""What is installed by which extra. Nothing here needs any of them."""

EXTRAS = {
    "server": ("cryptography", "httptools", "msgspec", "rich", "starlette", "uvicorn", "uvloop"),
    "postgres": ("psycopg",),
    "libvirt": ("libvirt",),
}


def extra_of(module: str) -> str:
    """The extra that has this module; what is in none of them is what one of `server` needs."""
    return next((extra for extra, modules in EXTRAS.items() if module in modules), "server")
