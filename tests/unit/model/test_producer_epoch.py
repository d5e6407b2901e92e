"""Epochs of sinks' numbers rise from one generation of the store to the next, and fit."""

from __future__ import annotations

from datetime import UTC, datetime

from speck.model.ids import producer_epoch

SINK_BITS = 22
"""By which the connector shifts an epoch (`MqttSink.chooseEpoch`)."""


def test_epochs_of_a_restored_store_are_higher_and_fit_into_a_long() -> None:
    since = (datetime(2080, 1, 1, tzinfo=UTC) - datetime(2020, 1, 1, tzinfo=UTC)).total_seconds()
    generation = int(since * 1000)
    epochs = [producer_epoch(1, 1), producer_epoch(1, 500_000), producer_epoch(generation, 7)]
    assert epochs[0] == 1
    assert epochs == sorted(set(epochs))
    assert epochs[-1] << SINK_BITS < 1 << 63
