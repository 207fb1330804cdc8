"""The data that the runtime executes, with its text form."""
