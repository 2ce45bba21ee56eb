"""Cases of a plugin: its file is read, its library loaded, and the calls of its interface carried out."""
