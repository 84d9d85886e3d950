"""A dead letter has a bounded size, whatever its request holds."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st
from koordcore.requests.parked import Parked, encoded_within
from koordcore.values import codec

MOST = 4096
TEXTS = st.text(max_size=40) | st.sampled_from(["", "\x01" * MOST, "\u6f22" * MOST, '"' * MOST])


@given(body=st.binary(max_size=64) | st.integers(0, 2 * MOST).map(bytes), error=TEXTS, header=TEXTS)
def test_a_dead_letter_is_whole_or_says_what_it_lacks(body: bytes, error: str, header: str) -> None:
    parked = Parked(
        stream="KOORD_CMD_demo", seq=7, consumer="c", subject="s", body=body, error=error, headers={"H": header}
    )

    encoded = encoded_within(parked, MOST)

    assert len(encoded) <= MOST
    kept = codec.decode(encoded, Parked)
    if len(codec.encode(parked)) <= MOST:
        assert kept == parked
    elif kept.full_size:
        assert (kept.full_size, kept.full_sha256) == (len(body), hashlib.sha256(body).hexdigest())
        assert body.startswith(kept.body)
    else:
        assert kept.body == body
    assert error.startswith(kept.error)
