"""What each public name answers to bad input: tables of rows, one for each room."""
