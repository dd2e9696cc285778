"""What speculation did, counted at the verifier."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SpeculationStatistics:
    """Counts over verified steps (prefill is none). Position i is the i-th draft of a step."""

    num_steps: int = 0  # target passes that produced tokens after the first
    num_emitted_tokens: int = 0  # by those passes
    num_drafts: int = 0  # steps that had at least one draft
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    drafted_per_position: list[int] = field(default_factory=list)
    accepted_per_position: list[int] = field(default_factory=list)
    all_stood: int = 0  # steps running, up to the last one with drafts, in which every draft stood

    def record(self, drafted: int, accepted: int, emitted: int) -> None:
        """One target pass over `drafted` drafts of which the first `accepted` stood; `emitted` tokens were kept."""
        self.num_steps += 1
        self.num_emitted_tokens += emitted
        self.num_drafts += drafted > 0
        self.num_draft_tokens += drafted
        self.num_accepted_tokens += accepted
        if drafted:
            self.all_stood = self.all_stood + 1 if accepted == drafted else 0
        for counts, reached in ((self.drafted_per_position, drafted), (self.accepted_per_position, accepted)):
            counts.extend([0] * (drafted - len(counts)))
            for position in range(reached):
                counts[position] += 1

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per target pass, bonus included."""
        return self.num_emitted_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def acceptance_per_position(self) -> list[float]:
        """Share of drafts at each position that were accepted; a later position counts as drafted whenever it was."""
        pairs = zip(self.accepted_per_position, self.drafted_per_position, strict=True)
        return [accepted / drafted for accepted, drafted in pairs]

    @property
    def conditional_acceptance(self) -> list[float]:
        """Acceptance at each position among the steps whose earlier drafts were all accepted."""
        reached = [self.num_drafts, *self.accepted_per_position]
        return [a / r if r else 0.0 for a, r in zip(self.accepted_per_position, reached, strict=False)]
