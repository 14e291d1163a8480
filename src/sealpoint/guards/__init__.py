"""What is checked of databases of others: how a file is opened, what a schema may have, what is read."""
