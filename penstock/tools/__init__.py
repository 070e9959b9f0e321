"""The command line, and what people look at: demo, doctor, explain, run, timeline."""
