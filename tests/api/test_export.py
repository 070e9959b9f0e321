"""The table of public names."""

import pytest

from penstock.api import export as public


def test_export_and_resolve(monkeypatch):
    monkeypatch.setattr(public, "_table", {})

    @public.export("f", "math.f")
    def f():
        return 1

    assert public.table()["f"] is public.table()["math.f"] is f
    public.export_value("pi", 3.14)
    public.export_lazy("ordered", "collections:OrderedDict")
    assert isinstance(public.table()["ordered"], public.Lazy)
    import collections

    assert public.resolve("ordered") is collections.OrderedDict


def test_one_name_one_object(monkeypatch):
    monkeypatch.setattr(public, "_table", {})
    public.export_value("a", public)
    public.export_value("a", public)
    with pytest.raises(ValueError, match="already stands for"):
        public.export_value("a", object())


@pytest.mark.parametrize("name", ["", "1a", "a..b", "a b"])
def test_bad_names(monkeypatch, name):
    monkeypatch.setattr(public, "_table", {})
    with pytest.raises(ValueError, match="not a dotted public name"):
        public.export_value(name, 1)


def test_bad_lazy_targets(monkeypatch):
    monkeypatch.setattr(public, "_table", {})
    with pytest.raises(ValueError, match="module:attribute"):
        public.export_lazy("a", "no_colon")
