"""Checks of FedSheafHN's equations, theorems and side claims, as plain functions of a `Run`.

identities        Eq. 5 to 15 to machine precision (SH-I1 to SH-I3)
convergence       Theorem 1 and Lemmas 1 to 4
generalization    Theorem 2
statistics        the clients' graphs (Tables 7 and 8)
diffusion         the vectors on their way through the sheaf (Figure 3), and servers with a part switched off
clients           clients that join after training (Figure 5), and the server's cost (Table 6)
"""
