"""What happens in a soak: drawn from a seed, and the same on the simulated network and on real sockets."""

import enum
import random
from collections.abc import Iterator

import attrs

MIN_TRANSFER_BYTES = 100


class Fault(enum.Enum):
    """What goes wrong on the way between a member and a router."""

    RESET = "reset"
    FREEZE = "freeze"  # nothing goes through, for a while
    FORGET = "forget"  # nothing goes through the connections there are, ever again
    HALF_CLOSE = "half-close"
    SLOW = "slow"
    GARBAGE = "garbage"


class Scope(enum.Enum):
    """Which ways are concerned."""

    PATH = "path"  # of one member to one router
    MEMBER = "member"  # of one member to all its routers: its process stands still, its network is gone
    ROUTER = "router"  # of one router to all its members


class Habit(enum.IntEnum):
    """How the two ends of a transfer behave. All of it is honest."""

    PLAIN = 0
    PAUSES = 1  # the receiver takes breaks
    QUITS = 2  # the sender resets its stream in the middle, and goes on with another
    LEAVES = 3  # the sender is cancelled in the middle, wherever it waits
    REFUSES = 4  # the receiver resets the stream in the middle


class Attack(enum.Enum):
    """What comes from those who are no members, or should not be."""

    NOISE = "noise"  # random bytes instead of a handshake
    HALF_OPEN = "half-open"  # a handshake that is not gone on with
    MUX_NOISE = "mux noise"  # random bytes behind a handshake
    RAPID_RESET = "rapid reset"  # streams opened and reset, as fast as it goes
    SQUATTING = "squatting"  # streams opened and never used
    OVERRUN = "overrun"  # more bytes than there is credit for
    CIRCUIT_NOISE = "circuit noise"  # a member that sends random bytes through a circuit instead of a handshake
    CIRCUIT_SILENCE = "circuit silence"  # a member that says nothing over the circuits that it opens


@attrs.frozen
class Injection:
    """A fault, at its time."""

    at: float  # seconds from the beginning, as in all of these
    fault: Fault
    scope: Scope
    member: int
    router: int
    inbound: bool  # towards the member, where it is about one direction
    lasts: float  # seconds
    badness: float  # 0 to 1: how slow


@attrs.frozen
class Transfer:
    """Bytes that one member has for another."""

    at: float
    number: int
    sender: int
    receiver: int
    size: int
    habit: Habit
    hangs_up: bool  # whether the sender closes the session when it is done


@attrs.frozen
class Restart:
    """A member that goes away, and comes back as the same."""

    at: float
    member: int
    lasts: float
    abrupt: bool


@attrs.frozen
class Assault:
    """An attack, at its time."""

    at: float
    attack: Attack
    victim: int  # a member, where it is about members
    router: int
    lasts: float


@attrs.frozen
class Rates:
    """How often things happen: per member and minute, but attacks in all."""

    faults: float = 1.0
    transfers: float = 1.0
    restarts: float = 0.1
    attacks: float = 20.0
    max_transfer_bytes: int = 1_000_000


@attrs.frozen
class Scenario:
    """All that is going to happen, each list in the order of time."""

    seed: int
    members: int
    routers: int
    seconds: float
    injections: tuple[Injection, ...]
    transfers: tuple[Transfer, ...]
    restarts: tuple[Restart, ...]
    assaults: tuple[Assault, ...]


# How likely each is; FREEZE also stands for hosts that stop.
FAULTS = {
    Fault.RESET: 3,
    Fault.FREEZE: 3,
    Fault.FORGET: 1,
    Fault.HALF_CLOSE: 2,
    Fault.SLOW: 3,
    Fault.GARBAGE: 2,
}
SCOPES = {Scope.PATH: 90, Scope.MEMBER: 9, Scope.ROUTER: 1}
HABITS = {Habit.PLAIN: 6, Habit.PAUSES: 2, Habit.QUITS: 1, Habit.LEAVES: 1, Habit.REFUSES: 1}


def make_scenario(seed: int, *, members: int, seconds: float, routers: int = 3, rates: Rates | None = None) -> Scenario:
    """The scenario of a seed. What lasts for a while is over when its `seconds` are.

    Args:
        seed: of everything.
        members: how many there are.
        seconds: how long things go wrong.
        routers: how many there are.
        rates: how often.
    """
    rates = rates or Rates()
    chance = random.Random(seed)
    per_member = members * seconds / 60

    def moments(count: float) -> Iterator[float]:
        return iter(sorted(chance.uniform(0, seconds) for _ in range(round(count))))

    return Scenario(
        seed,
        members,
        routers,
        seconds,
        tuple(_injection(chance, at, members, routers, seconds - at) for at in moments(rates.faults * per_member)),
        tuple(
            _transfer(chance, at, number, members, rates.max_transfer_bytes)
            for number, at in enumerate(moments(rates.transfers * per_member))
        ),
        tuple(_restart(chance, at, members, seconds - at) for at in moments(rates.restarts * per_member)),
        tuple(_assault(chance, at, members, routers, seconds - at) for at in moments(rates.attacks * seconds / 60)),
    )


def _injection(chance: random.Random, at: float, members: int, routers: int, left: float) -> Injection:
    (fault,) = chance.choices(list(FAULTS), list(FAULTS.values()))
    (scope,) = chance.choices(list(SCOPES), list(SCOPES.values()))
    return Injection(
        at=at,
        fault=fault,
        scope=scope,
        member=chance.randrange(members),
        router=chance.randrange(routers),
        inbound=chance.random() < 0.5,
        lasts=min(chance.expovariate(1 / 15), left),
        badness=chance.random(),
    )


def _transfer(chance: random.Random, at: float, number: int, members: int, max_bytes: int) -> Transfer:
    sender, receiver = chance.sample(range(members), 2)
    (habit,) = chance.choices(list(HABITS), list(HABITS.values()))
    size = int(MIN_TRANSFER_BYTES * (max_bytes / MIN_TRANSFER_BYTES) ** chance.random())  # as many small as large
    return Transfer(at, number, sender, receiver, size, habit, hangs_up=chance.random() < 0.7)


def _restart(chance: random.Random, at: float, members: int, left: float) -> Restart:
    return Restart(at, chance.randrange(members), min(chance.expovariate(1 / 10), left), abrupt=chance.random() < 0.5)


def _assault(chance: random.Random, at: float, members: int, routers: int, left: float) -> Assault:
    return Assault(
        at,
        chance.choice(list(Attack)),
        chance.randrange(members),
        chance.randrange(routers),
        min(chance.expovariate(1 / 20), left),
    )
