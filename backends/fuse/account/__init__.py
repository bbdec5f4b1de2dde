"""What is told of each graph that was compiled: to `framejit.inspect`, and as files to read and to run."""
