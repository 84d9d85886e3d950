"""The table of append outcomes: event-bus spec, 4.3, row by row."""

import pytest
from koordcore.bus.write.outcome import NO_ANSWER, NO_RESPONDERS, Action, AppendReply, classify, read_answer


@pytest.mark.parametrize(
    ("code", "err_code", "action"),
    [
        (400, 10071, Action.READ_BACK),
        (400, 10164, Action.WAIT_AND_READ_BACK),
        (400, 10201, Action.READ_BACK_ALL),
        (409, 10158, Action.REPEAT),
        (503, 10163, Action.REPEAT),
        (503, 10008, Action.REPEAT),
        (429, 10167, Action.BACK_OFF),
        (429, 10210, Action.BACK_OFF),
        (503, 10077, Action.FULL),
        (500, 10047, Action.FULL),
        (503, 10023, Action.FULL),
        (400, 10060, Action.STOP),
        (400, 10174, Action.STOP),
        (400, 10199, Action.STOP),
        # not in the table: the beginning of the batch was shed or lost
        (400, 10176, Action.BACK_OFF),
        # unlisted
        (500, 19999, Action.REPEAT),
        (429, 19999, Action.BACK_OFF),
        (400, 19999, Action.STOP),
        (404, 10059, Action.STOP),
    ],
)
def test_an_error_answer_leads_to_its_action(code: int, err_code: int, action: Action):
    assert classify(AppendReply(code=code, err_code=err_code)).action is action


def test_an_acknowledgement_is_stored():
    assert classify(AppendReply(seq=7)).action is Action.STORED


def test_a_duplicate_was_stored_before():
    assert classify(AppendReply(seq=7, duplicate=True)).action is Action.STORED_BEFORE


@pytest.mark.parametrize("answer", [NO_ANSWER, NO_RESPONDERS])
def test_silence_and_no_responders_are_repeated(answer: AppendReply):
    assert classify(answer).action is Action.REPEAT


def test_the_reason_names_code_and_description():
    assert classify(AppendReply(code=503, err_code=10077, description="maximum bytes exceeded")).reason == (
        "503/10077 maximum bytes exceeded"
    )


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b'{"stream":"S","seq":5}', AppendReply(seq=5)),
        (b'{"stream":"S","seq":5,"duplicate":true}', AppendReply(seq=5, duplicate=True)),
        (b'{"stream":"S","seq":5,"batch":"b","count":2}', AppendReply(seq=5, count=2)),
        (
            b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}',
            AppendReply(code=400, err_code=10071, description="wrong last sequence: 3"),
        ),
        (b'{"error":{}}', AppendReply(code=500)),
    ],
)
def test_an_acknowledgement_is_read(data: bytes, answer: AppendReply):
    assert read_answer(data) == answer


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"seq":"x"}'])
def test_bytes_that_are_no_acknowledgement_are_repeated(data: bytes):
    assert classify(read_answer(data)).action is Action.REPEAT
