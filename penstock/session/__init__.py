"""The front door: sessions, and the runtime of one process behind them."""
