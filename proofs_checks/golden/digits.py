"""Numbers of 50 digits in a context of their own: no caller's precision changes a file, and no file a caller's."""

from mpmath import MPContext

mp = MPContext()
mp.dps = 50
mpf = mp.mpf
