"""Pools of states: who reads and writes which slot, padding, and speculative tokens."""

import pytest
import torch
from gdn import Problem, bits

PAD = 3.0


class Pool:
    """Slots of both states, one guard slot in front and one behind; the problem's states lie in
    `slots`, everything else is PAD (or NaN)."""

    def __init__(self, problem, slots, size=8, columns=None, filler=PAD):
        self.size = size
        conv = torch.full((size + 2, problem.channels, columns or problem.W - 1), filler)
        state = torch.full((size + 2, problem.HV, problem.V, problem.K), filler)
        self.all_conv = conv.to(problem.dtype)
        self.all_state = state.to(problem.state_dtype)
        self.conv, self.state = self.all_conv[1:-1], self.all_state[1:-1]
        for b, slot in enumerate(slots):
            if 0 <= slot < size:
                self.conv[slot, :, : problem.W - 1] = problem.window[b]
                self.state[slot] = problem.state[b].transpose(-1, -2)
        self.before = self.all_conv.clone(), self.all_state.clone()

    def call(self, problem, indices, dtype=torch.int32, **words):
        words = {"padding": "negative"} | words
        tensor = torch.tensor(indices, dtype=dtype)
        return problem.call(
            conv_state=self.conv, state=self.state, state_indices=tensor, **words
        )[0]  # fmt: skip

    def assert_untouched_but(self, slots):
        rest = [i for i in range(self.size + 2) if i - 1 not in slots]
        for now, before in zip((self.all_conv, self.all_state), self.before, strict=True):
            assert torch.equal(bits(now[rest]), bits(before[rest]))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_slots_in_any_order(dtype):
    problem = Problem(batch=3)
    want, conv, state = problem.call()
    pool = Pool(problem, [5, 0, 7])
    assert torch.equal(pool.call(problem, [5, 0, 7], dtype), want)
    assert torch.equal(pool.conv[[5, 0, 7]], conv) and torch.equal(pool.state[[5, 0, 7]], state)
    pool.assert_untouched_but([5, 0, 7])


@pytest.mark.parametrize("layout", ["interleaved", "flat"])
def test_a_fresh_sequence_reads_a_slot_of_zeros(layout):
    """What another user left in its own slot, NaN included, is never seen."""
    problem = Problem(batch=3)
    for name in ("window", "state"):
        getattr(problem, name)[1:] = 0
    want, conv, state = problem.call(layout)
    pool = Pool(problem, [5], filler=float("nan"))
    pool.conv[2], pool.state[2] = 0, 0
    write = torch.tensor([5, 0, 7])
    out = pool.call(problem, [5, 2, 2], layout=layout, write_indices=write)
    assert torch.equal(out, want)
    assert torch.equal(pool.conv[write], conv) and torch.equal(pool.state[write], state)
    assert not pool.conv[2].any() and not pool.state[2].any()


def test_strided_indices_and_slots():
    problem = Problem(batch=3)
    want, _, state = problem.call()
    pool = Pool(problem, [5, 0, 7])
    page = torch.full((8, 2 * problem.HV * problem.V * problem.K + 5), PAD)  # Slots with a gap.
    paged = page[:, : problem.HV * problem.V * problem.K].view(8, problem.HV, problem.V, problem.K)
    paged.copy_(pool.state)
    indices = torch.tensor([[5, 9], [0, 9], [7, 9]])[:, 0]
    out, _, _ = problem.call(
        conv_state=pool.conv, state=paged, state_indices=indices, padding="negative"
    )
    assert torch.equal(out, want) and torch.equal(paged[[5, 0, 7]], state)
    assert (page[:, problem.HV * problem.V * problem.K :] == PAD).all()


def test_padding_gives_zeros_and_touches_nothing():
    problem = Problem(batch=3, tokens=2)
    want = problem.call()[0]
    pool = Pool(problem, [4, -1, 0])
    out = pool.call(problem, [4, -1, 0])
    assert torch.equal(out[[0, 2]], want[[0, 2]])
    assert (bits(out[1]) == 0).all()
    pool.assert_untouched_but([4, 0])
    alone = Problem(batch=3, tokens=2)
    alone_pool = Pool(alone, [4, -1, -1])
    assert torch.equal(alone_pool.call(alone, [4, -(2**31), -7])[0], want[0])


@pytest.mark.parametrize("write", [6, 3, 99, -7])
def test_where_padding_would_be_written_is_not_looked_at(write):
    """A slot that nobody has, that of another sequence, one beyond the pool, and padding too."""
    problem = Problem(batch=2)
    want = problem.call()[0]
    pool = Pool(problem, [4, -1])
    out = pool.call(problem, [4, -1], write_indices=torch.tensor([3, write]))
    assert torch.equal(out[0], want[0]) and (bits(out[1]) == 0).all()
    pool.assert_untouched_but([3])


def test_slot_zero_is_a_slot_or_nobody_as_the_caller_says():
    problem = Problem(batch=4)
    want = problem.call()[0]
    pool = Pool(problem, [3, 0, 1, -1])
    out = pool.call(problem, [3, 0, 0, 0], padding="nonpositive")
    assert torch.equal(out[0], want[0]) and (bits(out[1:]) == 0).all()
    pool.assert_untouched_but([3])
    live = Pool(problem, [3, 0, -1, -1])
    assert torch.equal(live.call(problem, [3, 0, -1, -1])[1], want[1])


@pytest.mark.parametrize(
    ("indices", "write", "words"),
    [
        ([8, 1], None, r"state_indices\[0\] is 8; the pool has 8 slots, 0 to 7"),
        ([1, 2**31 - 1], None, r"state_indices\[1\] is 2147483647; the pool has 8 slots"),
        ([1, 2], [3, 9], r"write_indices\[1\] is 9; the pool has 8 slots"),
        ([2, 2], None, "slot 2 is written twice, for sequences 0 and 1"),
        ([1, 2], [3, 3], "slot 3 is written twice"),
        ([1, 2], [2, 3], "slot 2 is read for sequence 1 and written for sequence 0"),
    ],
)
def test_bad_indices_raise_before_anything_is_written(indices, write, words):
    problem = Problem()
    pool = Pool(problem, indices)
    more = {} if write is None else {"write_indices": torch.tensor(write, dtype=torch.int32)}
    with pytest.raises(RuntimeError, match=words):
        pool.call(problem, indices, **more)
    pool.assert_untouched_but([])


def test_reading_and_writing_different_slots():
    problem = Problem(batch=3)
    want, conv, state = problem.call()
    pool = Pool(
        problem, [1, 2, 3], filler=float("nan")
    )  # A slot that is written need not be clean.
    pool.before = pool.all_conv.clone(), pool.all_state.clone()
    out = pool.call(problem, [1, 2, 3], write_indices=torch.tensor([5, 2, -1], dtype=torch.int32))
    assert torch.equal(out, want)
    assert torch.equal(pool.conv[[5, 2]], conv[:2]) and torch.equal(pool.state[[5, 2]], state[:2])
    pool.assert_untouched_but([5, 2])


def test_a_slot_that_an_earlier_user_left_full_of_nan_starts_clean_once_zeroed():
    problem = Problem(batch=1)
    problem.window.zero_()
    problem.state.zero_()
    pool = Pool(problem, [2], filler=float("nan"))
    assert torch.equal(pool.call(problem, [2]), problem.call()[0])
    assert pool.conv[2].isfinite().all() and pool.state[2].isfinite().all()


@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_speculation_is_undone_up_to_the_accepted_token(accepted):
    """Four tokens are tried, some are accepted, two more follow: bit by bit as if only the accepted
    ones had ever been seen."""
    problem = Problem(tokens=4, batch=2, state_dtype=torch.bfloat16)
    tried = problem.rows
    pool = Pool(problem, [1, 5], size=10, columns=6)
    indices = [[1, 2, 3, 4], [5, 6, 7, 8]]
    one = torch.ones(2, dtype=torch.int32)
    first = pool.call(problem, indices, num_accepted=one)
    pool.assert_untouched_but(range(1, 9))

    seen = Problem(tokens=4, batch=2, state_dtype=torch.bfloat16)
    cut = lambda r, n: type(r)(*(getattr(r, f)[:, :n] for f in "qkvzba"))  # noqa: E731
    seen.rows, seen.tokens = cut(tried, accepted), accepted
    out, conv, state = seen.call()
    assert torch.equal(first[:, :accepted], out)
    for b in range(2):
        assert torch.equal(bits(pool.state[indices[b][accepted - 1]]), bits(state[b]))

    problem.tokens = 2
    problem.rows = seen.rows = problem.new_rows()
    seen.tokens = 2
    follow = pool.call(problem, indices, num_accepted=one * accepted)
    want, _, want_state = seen.call(conv_state=conv, state=state)
    assert torch.equal(follow, want)
    for b in range(2):
        assert torch.equal(bits(pool.state[indices[b][1]]), bits(want_state[b]))


def test_speculative_tokens_are_kept_in_other_slots():
    problem = Problem(tokens=2, batch=2)
    indices, one = [[1, 2], [5, 6]], torch.ones(2, dtype=torch.int32)
    there = Pool(problem, [1, 5], size=10, columns=4)
    want = there.call(problem, indices, num_accepted=one)
    pool = Pool(problem, [1, 5], size=10, columns=4)
    write = torch.tensor([[3, 4], [7, -1]])
    assert torch.equal(pool.call(problem, indices, num_accepted=one, write_indices=write), want)
    assert torch.equal(pool.state[[3, 4, 7]], there.state[[1, 2, 5]])
    assert torch.equal(pool.conv[[3, 7]], there.conv[[1, 5]])
    pool.assert_untouched_but([3, 4, 7])


def test_speculative_padding_and_counts():
    problem = Problem(tokens=2, batch=2)
    pool = Pool(problem, [1, -1], columns=4)
    count = torch.tensor([1, 0])
    out = pool.call(problem, [[1, 2], [-1, -1]], num_accepted=count)
    assert (bits(out[1]) == 0).all()
    pool.assert_untouched_but([1, 2])
    for bad in (0, 3, -1):
        again = Pool(problem, [1, 3], columns=4)
        with pytest.raises(RuntimeError, match=rf"num_accepted\[1\] is {bad}; it must be 1 to 2"):
            again.call(problem, [[1, 2], [3, 4]], num_accepted=torch.tensor([1, bad]))
        again.assert_untouched_but([])
