"""What Python code defines: functions, classes, their instances, exceptions, modules."""
