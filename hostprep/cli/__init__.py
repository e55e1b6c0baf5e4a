"""The Typer commands: parse options, call one function, render its result. Nothing else prints."""
