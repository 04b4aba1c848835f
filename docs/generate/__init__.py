"""Pages and files of the documentation that are made from the program itself when the site is built."""
