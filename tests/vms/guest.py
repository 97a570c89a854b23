"""A guest that boots in two seconds without hardware to help: Debian's cloud kernel and busybox.

It polls its metadata endpoint, approves what is Scheduled, and says on its console what it sees.
"""

import lzma
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

CACHE = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "fairnotice" / "guest"
BUSYBOX = Path("/bin/busybox")
# In the order in which they need each other.
MODULES = (
    "virtio/virtio_ring.ko",
    "virtio/virtio.ko",
    "virtio/virtio_pci_modern_dev.ko",
    "virtio/virtio_pci_legacy_dev.ko",
    "virtio/virtio_pci.ko",
    "net/net_failover.ko",
    "net/virtio_net.ko",
    "acpi/button.ko",
    "input/evdev.ko",
)
# An emulated guest may hang while it boots, about once in some hundred times: it boots again then.
COMMAND_LINE = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr noreplace-smp tsc=reliable "
    "no_timer_check lpj=4000000 8250.nr_uarts=1 cryptomgr.notests random.trust_cpu=on "
    "rcupdate.rcu_expedited=1 softlockup_panic=1"
)
# What is said on the console; the rest of a line is its boot id, and what it is about.
BOOTED, APPROVED, SAW, TICK = "guest-booted", "guest-approved", "guest-saw", "guest-tick"
PRESSED = "guest-pressed"
# The kernel's own word for that it boots again, since it hung.
HUNG = "softlockup: hung tasks"
# Whoever connects there is a user who types `reboot`.
REBOOT_PORT = 9
# Says that its button was pressed, and leaves it at that.
DEAF = "guest.deaf=1"
_INIT = f"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod $module; done
for word in $(cat /proc/cmdline); do
    case $word in
        guest.address=*) address=${{word#*=}} ;;
        guest.deaf=1) deaf=1 ;;
        guest.slow=*) slow=${{word#*=}} ;;
    esac
done
boot=$(cat /proc/sys/kernel/random/boot_id)
# The power button is an input device: its first event is somebody who presses it.
press() {{
    dd if=$1 of=/dev/null bs=24 count=1 2>/dev/null || return
    echo "{PRESSED} $boot"
    [ -z "$deaf" ] || return
    sleep ${{slow:-0}}
    poweroff -f
}}
for button in /dev/input/event*; do press $button & done
ip link set lo up
ip link set eth0 up
ip address add $address/24 dev eth0
ip route add 169.254.169.254 dev eth0
{{ until nc -l -p {REBOOT_PORT} >/dev/null; do sleep 0.2; done; reboot -f; }} &
echo "{BOOTED} $boot"
url="http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
ask() {{ timeout 5 wget -q -O - --header "Metadata: true" "$@" "$url"; }}
approved=
said=
while :; do
    document=$(ask)
    case $document in *Events*) echo "{TICK} $boot" ;; esac
    if [ "$document" != "$said" ]; then
        said=$document
        echo "{SAW} $boot $document"
    fi
    case $document in *'"EventStatus":"Scheduled"'*)
        event=$(echo "$document" | sed 's/.*"EventId":"\\([^"]*\\)".*/\\1/')
        if [ "$event" != "$approved" ]; then
            ask --post-data "{{\\"StartRequests\\":[{{\\"EventId\\":\\"$event\\"}}]}}" &&
                approved=$event && echo "{APPROVED} $boot $event"
        fi ;;
    esac
    sleep 0.5
done
"""
_LZ4 = bytes.fromhex("02214c18")


class MissingForGuest(Exception):
    """Something that a guest is made of is not here; the sentence says what."""


class Guest(NamedTuple):
    """A kernel and what it boots into."""

    kernel: Path
    initrd: Path


def guest() -> Guest:
    """The guest, built where it was not yet."""
    if not BUSYBOX.exists():
        raise MissingForGuest("busybox is missing: apt-get install busybox-static")
    if not (CACHE / "vmlinux").exists():
        _fetch_kernel()
    return Guest(CACHE / "vmlinux", _built_initrd())


def _fetch_kernel() -> None:
    """Debian's newest cloud kernel, downloaded and not installed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        try:
            depends = _said("apt-cache", "depends", "linux-image-cloud-amd64")
        except MissingForGuest as error:
            raise MissingForGuest(f"{error} (apt-get update; it is Debian's own)") from error
        packages = [word for word in depends.split() if word.startswith("linux-image-6")]
        if not packages:
            raise MissingForGuest("apt knows no linux-image-cloud-amd64: apt-get update")
        _said("apt-get", "download", "-q", packages[0], cwd=folder)
        (package,) = folder.glob("*.deb")
        _said("dpkg-deb", "-x", str(package), str(folder / "x"))
        (image,) = (folder / "x" / "boot").glob("vmlinuz-*")
        modules = folder / "modules"
        modules.mkdir()
        (tree,) = (folder / "x" / "lib" / "modules").glob("*/kernel")
        for number, one in enumerate(("../net/core/failover.ko", *MODULES)):
            file = tree / "drivers" / one
            shutil.copy(file.resolve(), modules / f"{number:02}-{file.name}")
        _replace(modules, CACHE / "modules")
        whole = folder / "vmlinux"
        whole.write_bytes(extracted(image.read_bytes()))
        # Last: whoever finds it finds the modules as well.
        whole.replace(CACHE / "vmlinux")


def _replace(folder: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    folder.replace(place)


def extracted(image: bytes) -> bytes:
    """The ELF file inside a bzImage: it boots by PVH, and resets in a third of the time."""
    sectors = image[0x1F1]
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    packed = image[start : start + length]
    if packed.startswith(_LZ4):
        return _unpacked_lz4(packed)
    return lzma.LZMADecompressor().decompress(packed)


def _unpacked_lz4(packed: bytes) -> bytes:
    """The kernel's own LZ4: blocks after a magic number, each with its length before it."""
    # The last four bytes are the length of the whole once unpacked.
    end, position = len(packed) - 4, len(_LZ4)
    blocks = []
    while position < end:
        (length,) = struct.unpack_from("<I", packed, position)
        position += 4
        blocks.append(_unpacked_block(packed[position : position + length]))
        position += length
    return b"".join(blocks)


def _unpacked_block(block: bytes) -> bytes:
    """Literals, and copies of what was there before, in turn."""
    out = bytearray()
    position, end = 0, len(block)
    while position < end:
        token = block[position]
        position += 1
        length, position = _length(token >> 4, block, position)
        out += block[position : position + length]
        position += length
        if position >= end:
            break
        offset = block[position] | block[position + 1] << 8
        length, position = _length(token & 15, block, position + 2)
        length += 4
        start = len(out) - offset
        if offset >= length:
            out += out[start : start + length]
        else:
            # It overlaps what it makes: a pattern that repeats.
            pattern = bytes(out[start:])
            out += (pattern * (length // offset + 1))[:length]
    return bytes(out)


def _length(short: int, block: bytes, position: int) -> tuple[int, int]:
    if short == 15:
        while True:
            more = block[position]
            position += 1
            short += more
            if more != 255:
                break
    return short, position


def _built_initrd() -> Path:
    """A few files, as the kernel unpacks them."""
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name) / "root"
        for folder in ("bin", "proc", "sys", "dev", "modules"):
            (root / folder).mkdir(parents=True)
        shutil.copy(BUSYBOX.resolve(), root / "bin" / "busybox")
        applets = _said(str(BUSYBOX), "--list").split()
        for applet in applets:
            if applet != "busybox":
                (root / "bin" / applet).symlink_to("busybox")
        for module in (CACHE / "modules").iterdir():
            shutil.copy(module, root / "modules")
        _program(root / "init", _INIT)
        packed = Path(name) / "initrd"
        with packed.open("wb") as file:
            listing = "\n".join(str(one.relative_to(root)) for one in sorted(root.rglob("*")))
            subprocess.run(  # noqa: S603
                [str(BUSYBOX), "cpio", "-o", "-H", "newc"],
                cwd=root,
                input=listing.encode(),
                stdout=file,
                stderr=subprocess.DEVNULL,
                check=True,
            )
        packed.replace(CACHE / "initrd")
    return CACHE / "initrd"


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _said(*words: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            words, cwd=cwd, capture_output=True, text=True, check=True
        )
    except FileNotFoundError as error:
        raise MissingForGuest(
            f"{words[0]} is missing: the guest is made of Debian's kernel"
        ) from error
    except subprocess.CalledProcessError as error:
        # What went wrong is said last.
        (*_, last) = error.stderr.strip().splitlines() or [""]
        raise MissingForGuest(f"{' '.join(words)} has failed: {last}") from error
    return done.stdout


DOMAIN = """<domain type="qemu">
  <name>{name}</name>
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="q35">hvm</type>
    <kernel>{kernel}</kernel><initrd>{initrd}</initrd><cmdline>{line}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode="custom"><model>qemu64</model></cpu>
  <devices>
    <interface type="bridge">
      <mac address="52:54:00:00:00:{number:02x}"/>
      <source bridge="{bridge}"/><model type="virtio"/><rom enabled="no"/>
    </interface>
    {more}<serial type="file"><source path="{console}" append="on"/></serial>
    <controller type="usb" model="none"/><memballoon model="none"/>
  </devices>
</domain>"""


def slow(seconds: float) -> str:
    """A guest that takes its time to end."""
    return f"guest.slow={seconds:g}"


def domain_xml(
    name: str, address: str, console: Path, bridge: str, *, manner: str = "", more: str = ""
) -> str:
    """A domain with this guest; its manner is DEAF, or slow(…), to its power button."""
    made = guest()
    line = f"{COMMAND_LINE} guest.address={address} {manner}".rstrip()
    return DOMAIN.format(
        name=name,
        kernel=made.kernel,
        initrd=made.initrd,
        line=line,
        bridge=bridge,
        console=console,
        more=more,
        number=int(address.rpartition(".")[2]),
    )
