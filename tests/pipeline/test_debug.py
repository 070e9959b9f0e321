"""PENSTOCK_DEBUG's ladder."""

import penstock as tf
from penstock.pipeline import debug


def test_the_ladder(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DUMP", str(tmp_path))
    x = tf.placeholder(tf.float32, [], name="x")
    y = x * (tf.constant(1.0) + 2.0)
    lines = []
    for level in range(6):
        with debug.level(level), tf.Session() as sess:
            assert sess.run(y, {x: 2.0}) == 6.0
        lines.append(capsys.readouterr().err.count("\n"))
    assert lines[0] == 0 and lines[1] == 1
    assert lines == sorted(lines) and lines[2] < lines[3] < lines[5]
    names = sorted(p.name for p in tmp_path.iterdir())
    assert any("prune" in n for n in names) and any("partition-CPU0" in n for n in names)
