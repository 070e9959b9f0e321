"""What all of these tests use."""

from __future__ import annotations

import pytest

import penstock as tf


@pytest.fixture
def sess():
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
        yield session
