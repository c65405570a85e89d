"""What members say of themselves, as a report. Pure: whatever happens, what was heard so far can be reported."""

import enum
import re
from collections import Counter, defaultdict

import attrs

from agentmesh.bench.report import Hold, JoinReport, Member, Outages, percentile

MAX_REASONS = 100  # different ones that are kept apart
OTHER = "other"
MAX_REASON_CHARACTERS = 200
PEER = re.compile(r"12D3\w{40,}")


class News(enum.StrEnum):
    """What a member says."""

    READY = "ready"
    CALLED = "called"
    CALL_FAILED = "call_failed"
    LOST = "lost"
    BACK = "back"
    ENDED = "ended"


class Stage(enum.Enum):
    """Where a member is."""

    JOINING = enum.auto()
    READY = enum.auto()
    AWAY = enum.auto()
    FAILED = enum.auto()
    EXITED = enum.auto()


ROWS: dict[Stage, tuple[Stage | None, ...]] = {  # None: no member says that then
    #               READY        CALLED       CALL_FAILED  LOST        BACK         ENDED
    Stage.JOINING: (Stage.READY, None, None, None, None, Stage.FAILED),
    Stage.READY: (None, Stage.READY, Stage.READY, Stage.AWAY, None, Stage.EXITED),
    Stage.AWAY: (None, Stage.AWAY, Stage.AWAY, None, Stage.READY, Stage.EXITED),
    Stage.FAILED: (None, None, None, None, None, None),
    Stage.EXITED: (None, None, None, None, None, None),
}
AFTER = {(stage, news): to for stage, row in ROWS.items() for news, to in zip(News, row, strict=True)}


@attrs.frozen
class Said:
    """One thing that a member says.

    Attributes:
        member: its number.
        at: seconds on a clock that all processes share.
        took: seconds; of READY since its start, of CALLED since it was ready.
        why: of what failed.
    """

    member: int
    news: News
    at: float
    took: float = 0.0
    why: str = ""


def reason_of(text: str) -> str:
    """A reason without what tells members apart."""
    return PEER.sub("<peer>", " ".join(text.split()))[:MAX_REASON_CHARACTERS] or OTHER


class Tally:
    """Adds up what members say.

    Args:
        count: how many there are to be.
        calls: whether they call a service when they are ready.
        began: seconds on the members' clock.
    """

    def __init__(self, count: int, calls: bool, began: float) -> None:
        self._count, self._calls, self._began = count, calls, began
        self._stages = dict.fromkeys(range(count), Stage.JOINING)
        self._in = Counter({Stage.JOINING: count})
        self._ready_ms: dict[int, float] = {}
        self._first_call_ms: dict[int, float] = {}
        self._call_attempts = 0
        self._errors, self._call_errors = Counter[str](), Counter[str]()
        self._settled_at: float | None = None
        self._hold: _Holding | None = None

    @property
    def ready(self) -> int:
        """Members that hold a router now."""
        return self._in[Stage.READY]

    @property
    def gone(self) -> int:
        """Members that failed or exited."""
        return self._in[Stage.FAILED] + self._in[Stage.EXITED]

    @property
    def completed(self) -> int:
        return len(self._first_call_ms if self._calls else self._ready_ms)

    @property
    def is_settled(self) -> bool:
        """Whether every member has completed or is gone."""
        done = set(self._first_call_ms if self._calls else self._ready_ms)
        return all(number in done or stage in (Stage.FAILED, Stage.EXITED) for number, stage in self._stages.items())

    def hear(self, said: Said) -> None:
        """Take note of it. ValueError: it is not that member's turn to say so."""
        was, to = self._stages[said.member], AFTER[self._stages[said.member], said.news]
        if to is None:
            raise ValueError(f"member {said.member} says {said.news} while {was.name}")
        self._stages[said.member] = to
        self._in[was] -= 1
        self._in[to] += 1
        match said.news:
            case News.READY:
                self._ready_ms[said.member] = 1000 * said.took
            case News.CALLED:
                self._call_attempts += 1
                self._first_call_ms[said.member] = 1000 * said.took
            case News.CALL_FAILED:
                self._call_attempts += 1
                _count(self._call_errors, said.why)
            case News.ENDED:
                _count(self._errors, said.why)
            case News.LOST | News.BACK:
                pass
        if self._hold is not None:
            self._hold.hear(said, self.ready)

    def process_ended(self, members: range, at: float, why: str) -> None:
        """Those of them that are not gone yet ended with their process."""
        for number in members:
            if self._stages[number] not in (Stage.FAILED, Stage.EXITED):
                self.hear(Said(number, News.ENDED, at, why=why))

    def begin_hold(self, now: float) -> None:
        """From now on count who loses its routers."""
        self._settled_at = now
        away = [number for number, stage in self._stages.items() if stage is Stage.AWAY]
        self._hold = _Holding(now, self.ready, away)

    def report(self, now: float) -> JoinReport:
        """What was heard so far."""
        hold = self._hold.report(now, self._in[Stage.AWAY]) if self._hold else None
        until = now if self._settled_at is None else self._settled_at
        return JoinReport(
            members=tuple(Member(ms, self._first_call_ms.get(number)) for number, ms in self._ready_ms.items()),
            count=self._count,
            completed=self.completed,
            failed=sum(self._has_failed(number) for number in self._stages),
            call_attempts=self._call_attempts,
            elapsed_seconds=until - self._began,
            errors=dict(self._errors.most_common()),
            call_errors=dict(self._call_errors.most_common()),
            hold=hold,
        )

    def _has_failed(self, number: int) -> bool:
        lacks_call = self._calls and number not in self._first_call_ms
        stage = self._stages[number]
        return stage is Stage.FAILED or (stage is Stage.EXITED and lacks_call)


def _count(reasons: Counter[str], why: str) -> None:
    reason = reason_of(why)
    reasons[reason if reason in reasons or len(reasons) < MAX_REASONS else OTHER] += 1


class _Holding:
    """The time after the last member was ready.

    Args:
        away: those that hold no router as it begins.
    """

    def __init__(self, began: float, resident: int, away: list[int]) -> None:
        self._began, self._resident, self._min_ready = began, resident, resident
        self._lost_at = dict.fromkeys(away, began)
        self._flaps: defaultdict[int, int] = defaultdict(int)
        self._outages: list[float] = []
        self._exited = 0

    def hear(self, said: Said, ready: int) -> None:
        self._min_ready = min(self._min_ready, ready)
        if said.news is News.LOST:
            self._flaps[said.member] += 1
            self._lost_at[said.member] = said.at
        elif said.news in (News.BACK, News.ENDED) and said.member in self._lost_at:
            self._outages.append(said.at - self._lost_at.pop(said.member))
        self._exited += said.news is News.ENDED

    def report(self, now: float, away: int) -> Hold:
        outages = [1000 * one for one in (*self._outages, *(now - at for at in self._lost_at.values()))]
        return Hold(
            seconds=now - self._began,
            resident=self._resident,
            min_ready=self._min_ready,
            flaps=sum(self._flaps.values()),
            members_flapped=len(self._flaps),
            outage_ms=Outages(percentile(outages, 50), max(outages, default=0.0)),
            members_not_ready_at_end=away,
            members_exited=self._exited,
        )
