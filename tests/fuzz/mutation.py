"""Random damage to bytes, JSON and tensors, and walls around what reads them."""

import copy
import os
import random
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

from sasgp.errors import InputError
from sasgp.gp.linalg import NotPositiveDefiniteError

VALUES = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    1.5,
    -0.0,
    1e308,
    10**9,
    2**63,
    10**400,
    "",
    "x",
    "nan",
    [],
    {},
    [1, "x"],
    {"array": 3},
]
SECONDS, MORE_BYTES = 30, 1 << 30  # that reading one file may take

_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pickle.find_class", "socket.connect")
_armed = False


def _watch(event, arguments):
    if _armed and event in _FORBIDDEN:
        raise AssertionError(f"reading a file led to {event} {arguments}")


sys.addaudithook(_watch)


def _late(number, frame):
    raise AssertionError(f"reading a file took more than {SECONDS} seconds")


@contextmanager
def walls():
    """What is inside may start no program, load no class, and take neither a gigabyte more nor half a minute."""
    global _armed
    before = resource.getrlimit(resource.RLIMIT_AS)
    size, resident = (os.sysconf("SC_PAGE_SIZE") * int(n) for n in Path("/proc/self/statm").read_text().split()[:2])
    peak, handler = _peak(), signal.signal(signal.SIGALRM, _late)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (size + 4 * MORE_BYTES, before[1]))  # addresses: threads reserve some
    _armed = True
    try:
        yield
    finally:
        _armed = False
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert _peak() < max(resident, peak) + MORE_BYTES


def _peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def attempt(work):
    """What `work` returns, or None if it is refused in one sentence."""
    try:
        return work()
    except (InputError, NotPositiveDefiniteError) as error:
        sentence = str(error)
    assert sentence
    assert "\n" not in sentence
    return None


def damaged(content, draw):
    """Bytes with some changed, cut out, doubled or lost at the end."""
    content = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 5, 20])):
        at = draw.randrange(len(content)) if content else 0
        size = draw.choice([1, 1, 2, 8, 100])
        match draw.randrange(6):
            case 0 if content:
                content[at] ^= 1 << draw.randrange(8)
            case 1 if content:
                content[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)])
            case 2:
                del content[at : at + size]
            case 3:
                content[at:at] = content[at : at + size]
            case 4:
                content[at : at + size] = draw.randbytes(size)
            case 5 if draw.random() < 0.3:
                del content[at:]
    return bytes(content)


def changed(tree, draw):
    """JSON with one part replaced, left out, repeated or exchanged for another."""
    tree = copy.deepcopy(tree)
    places = list(_places(tree))
    holder, key = draw.choice(places)
    match draw.randrange(8):
        case 0:
            del holder[key]
        case 1:
            other, name = draw.choice(places)
            holder[key] = copy.deepcopy(other[name])
        case 2 if isinstance(holder[key], list) and holder[key]:
            holder[key] = draw.choice([holder[key][:-1], holder[key] * 2, holder[key][::-1]])
        case 3 if isinstance(holder[key], dict):
            holder[key][draw.choice(["x", "__class__", "fit", "data"])] = draw.choice(VALUES)
        case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] *= draw.choice([-1, 2, 1000, 0.5, 1e30])
        case 5 if isinstance(holder[key], str):
            holder[key] = draw.choice([holder[key] + "x", holder[key].upper(), holder[key][1:], holder[key] * 1000])
        case _:
            holder[key] = copy.deepcopy(draw.choice(VALUES))
    return tree


def _places(tree):
    """Each part of JSON, as the dict or list that holds it and its key there."""
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def other_tensors(tensors, draw):
    """Tensors of which one is missing, renamed, or has another shape, type or content."""
    tensors = dict(tensors)
    name = draw.choice(sorted(tensors))
    old = tensors.pop(name)
    match draw.randrange(9):
        case 0:
            return tensors
        case 1:
            return tensors | {draw.choice([name + "x", "x", "model." + name]): old}
        case 2:
            new = old.to(draw.choice([torch.float16, torch.float64, torch.int64, torch.bool, torch.bfloat16]))
        case 3:
            new = draw.choice([old[None], old[..., None], old.flatten(), old[:0] if old.ndim else old[None][:0]])
        case 4:
            new = old.flatten()[:-1] if draw.random() < 0.5 else torch.cat([old.flatten(), old.flatten()])
        case 5:
            new = old.mT.contiguous() if old.ndim > 1 else old.flip(0) if old.ndim else old
        case 6:
            new = torch.full_like(old, draw.choice([0, 1, 0.5, -1, 100]))
        case 7:
            new = old.clone()
            if old.is_floating_point() and old.numel():
                new.view(-1)[draw.randrange(old.numel())] = draw.choice([float("nan"), float("inf"), -1e30, 1e30])
        case _:
            new = tensors[draw.choice(sorted(tensors))].clone() if tensors else old
    return tensors | {name: new}


def generator(name, seed):
    return random.Random(f"{name} {seed}")
