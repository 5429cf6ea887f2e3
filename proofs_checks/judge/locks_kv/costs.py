def departures():
    return []
