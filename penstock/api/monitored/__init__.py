"""Sessions that look after themselves: `tf.train.MonitoredTrainingSession`, its hooks, and how its sessions are made."""
