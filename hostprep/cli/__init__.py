"""The Typer commands: parse options, call one function, render its result. Only here is printed."""
