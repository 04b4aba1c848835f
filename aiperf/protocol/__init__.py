"""What aiperf and its workers say to each other: messages.py holds the messages, wire.py how they are written."""
