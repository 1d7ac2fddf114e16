"""Small cone programs about many jobs: minimise t, which they have in common, or their own costs.

The variables of a job only meet those of others in the rows of `coupling`: so a step costs as much
as there are jobs. Source of the method: Domahidi, Chu, Boyd, "ECOS: An SOCP Solver for Embedded
Systems", ECC 2013 (predictor and corrector of Mehrotra on the self-dual embedding), with the
constants of the solver itself. Often many solutions are optimal: a simplex method returns a corner
of them, this one a point in their middle, and it is nearly the one that ECOS returns.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

NEAR: Final = 1e-8
ROUGH: Final = 5e-5  # where rounding errors keep it from coming nearer
WORSE: Final = 500
MOST_STEPS: Final = 100
LONGEST: Final = 0.999
SHORTEST: Final = 1e-6
KEPT: Final = 0.99  # of the way to the edge of a cone
LEAST_CENTRING: Final = 1e-4
SCALINGS: Final = 3
EASED: Final = 7e-8  # added to the diagonal of linear systems
REFINED: Final = 10  # times that one is solved, each time for what is missing
EXACT: Final = 1e-13
WIDE: Final = 3  # a curved cone: the first is at least the length of the other two


class ConeProgram:
    """Minimise `weight` * t, and `costs` of the variables, such that `free` - G x is in the cone.

    G has, for each job: `rows` of its own variables (form, job, variable), with `of_t` (form, job);
    and with `curved`, three rows of its variables whose slack is in a cone of Lorentz. `coupling`
    has a row for each of the first variables: its factor for each job. The `free` of all of them
    are in this order, and of the curved ones `curve` is that of every job.
    """

    def __init__(
        self,
        *,
        rows: Floats,
        of_t: Floats,
        free: Floats,
        coupling: Floats,
        capacity: Floats,
        weight: float = 0.0,
        costs: Floats | None = None,
        curved: Floats | None = None,
        curve: Floats | None = None,
    ) -> None:
        self.forms, self.jobs, self.own = rows.shape
        self.rows, self.of_t, self.coupling = rows.copy(), of_t.copy(), coupling.copy()
        self.curved = np.zeros((WIDE, 0, self.own)) if curved is None else curved.copy()
        self.cones = self.curved.shape[1]
        none = np.zeros((0, WIDE))
        curves = none if curve is None else np.tile(curve, (self.cones, 1))
        self.free = np.concatenate([free.ravel(), capacity, curves.ravel()])
        own = np.zeros(self.jobs * self.own) if costs is None else costs.ravel()
        self.cost = np.append(own, weight)
        self._plain = len(coupling)
        self.linear = self.forms * self.jobs + len(capacity)
        self._columns = self._balance()

    # --- G, by its parts

    def _split(self, dual: Floats) -> tuple[Floats, Floats, Floats]:
        many = self.forms * self.jobs
        return (
            dual[:many].reshape(self.forms, self.jobs),
            dual[many : self.linear],
            dual[self.linear :].reshape(self.cones, WIDE),
        )

    def _times(self, x: Floats) -> Floats:
        """Return G x."""
        own, t = x[:-1].reshape(self.jobs, self.own), x[-1]
        local = np.einsum("fmk,mk->fm", self.rows, own) + self.of_t * t
        shared = np.einsum("jm,mj->j", self.coupling, own[:, : len(self.coupling)])
        bent = np.einsum("cmk,mk->mc", self.curved, own[: self.cones])
        return np.concatenate([local.ravel(), shared, bent.ravel()])

    def _transposed_times(self, dual: Floats) -> Floats:
        """Return G' z."""
        local, shared, bent = self._split(dual)
        own = np.einsum("fmk,fm->mk", self.rows, local)
        own[:, : len(shared)] += (self.coupling * shared[:, None]).T
        if self.cones:
            own += np.einsum("cmk,mc->mk", self.curved, bent)
        return np.append(own.ravel(), (self.of_t * local).sum())

    def _balance(self) -> Floats:
        """Scale rows and columns to about one; return the scales of the columns."""
        own, common, shared = np.ones((self.jobs, self.own)), 1.0, len(self.coupling)
        for _ in range(SCALINGS):
            sizes, wide = np.abs(self.rows), np.abs(self.coupling)
            bent = np.abs(self.curved)
            column = sizes.max(axis=0)
            column[:, :shared] = np.maximum(column[:, :shared], wide.T)
            if self.cones:
                column = np.maximum(column, bent.max(axis=0))
            of_t = float(np.abs(self.of_t).max())
            row = np.maximum(sizes.max(axis=2), np.abs(self.of_t))
            column, row, wide, bent = (
                np.where(each < 1e-6, 1.0, np.sqrt(each))
                for each in (column, row, wide.max(axis=1), bent.max(axis=2).sum(axis=0))
            )
            root = of_t**0.5 if of_t >= 1e-6 else 1.0
            self.rows /= row[:, :, None] * column
            self.of_t /= row * root
            self.coupling /= wide[:, None] * column[:, :shared].T
            self.curved /= bent[:, None] * (column if self.cones else 1.0)
            self.free /= np.concatenate([row.ravel(), wide, np.repeat(bent, WIDE)])
            own *= column
            common *= root
        scales = np.append(own.ravel(), common)
        self.cost /= scales
        return scales

    # --- the cone

    def _identity(self) -> Floats:
        found = np.zeros(len(self.free))
        found[: self.linear] = 1.0
        found[self.linear :: WIDE] = 1.0
        return found

    def _into_cone(self, slack: Floats) -> Floats:
        """Return a slack that is inside."""
        bent = slack[self.linear :].reshape(self.cones, WIDE)
        depth = np.append(slack[: self.linear], bent[:, 0] - np.hypot(bent[:, 1], bent[:, 2]))
        outside = float(-depth.min())
        return slack + (1 + (outside if outside >= 0 else -KEPT)) * self._identity()

    def _scale(self, slack: Floats, dual: Floats) -> None:
        """Take the scaling of Nesterov and Todd."""
        linear = self.linear
        self._flat = np.sqrt(slack[:linear] / dual[:linear])
        s, z = slack[linear:].reshape(-1, WIDE), dual[linear:].reshape(-1, WIDE)
        s_size, z_size = np.sqrt(_lorentz(s, s)), np.sqrt(_lorentz(z, z))
        s, z = s / s_size[:, None], z / z_size[:, None]
        half = np.sqrt(0.5 * (1 + (s * z).sum(axis=1)))[:, None]
        self._point = (s + z * [1.0, -1.0, -1.0]) / (2 * half)
        self._size = np.sqrt(s_size / z_size)[:, None]

    def _scaled(self, vector: Floats) -> Floats:
        """Return W times a vector."""
        bent, point = vector[self.linear :].reshape(-1, WIDE), self._point
        along = (bent[:, 1:] * point[:, 1:]).sum(axis=1, keepdims=True)
        first = point[:, :1] * bent[:, :1] + along
        factor = bent[:, :1] + along / (1 + point[:, :1])
        others = bent[:, 1:] + factor * point[:, 1:]
        turned = self._size * np.hstack([first, others])
        return np.concatenate([self._flat * vector[: self.linear], turned.ravel()])

    def _product(self, one: Floats, two: Floats) -> Floats:
        u, v = one[self.linear :].reshape(-1, WIDE), two[self.linear :].reshape(-1, WIDE)
        others = u[:, :1] * v[:, 1:] + v[:, :1] * u[:, 1:]
        bent = np.hstack([(u * v).sum(axis=1, keepdims=True), others])
        return np.concatenate([one[: self.linear] * two[: self.linear], bent.ravel()])

    def _quotient(self, one: Floats, two: Floats) -> Floats:
        """Return what times `one` is `two`."""
        u, w = one[self.linear :].reshape(-1, WIDE), two[self.linear :].reshape(-1, WIDE)
        size = _lorentz(u, u)[:, None]
        first = _lorentz(u, w)[:, None] / size
        others = (w[:, 1:] - first * u[:, 1:]) / u[:, :1]
        bent = np.hstack([first, others])
        return np.concatenate([two[: self.linear] / one[: self.linear], bent.ravel()])

    def _length(self, at: Floats, steps: tuple[Floats, Floats], lines: Floats) -> float:
        """Return how far scaled steps stay in the cone, and each of `lines` (at, step) above 0."""
        linear, fastest = self.linear, 0.0
        u = at[linear:].reshape(-1, WIDE)
        size = np.sqrt(_lorentz(u, u))[:, None]
        unit = u / size
        for step in steps:
            fastest = max(fastest, float((-step[:linear] / at[:linear]).max()))
            if self.cones:
                v = step[linear:].reshape(-1, WIDE)
                first = _lorentz(unit, v)[:, None]
                factor = (first + v[:, :1]) / (unit[:, :1] + 1)
                others = v[:, 1:] - factor * unit[:, 1:]
                away = np.hypot(others[:, 0], others[:, 1]) - first[:, 0]
                fastest = max(fastest, float((away / size[:, 0]).max()))
        fastest = max(fastest, *(-step / value for value, step in lines))
        return max(SHORTEST, min(LONGEST, 1 / fastest if fastest > 0 else LONGEST))

    # --- the steps

    def _factor(self) -> None:
        """Prepare the solution of linear systems.

        What is solved is a system nearby, which rounding errors harm less; see `_newton`. The
        unknowns of a job are its variables, and the duals of its rows but those of one variable.
        """
        shared, forms, own = len(self.coupling), self.forms, self.own
        local, self._shared_weight, _ = self._split(
            np.append(self._flat**2 + EASED, np.zeros(WIDE * self.cones))
        )
        plain = self._plain
        wide = forms - plain
        size = own + wide + (WIDE + 1) * bool(self.cones)
        block = np.zeros((self.jobs, size, size))
        alone = np.einsum("fmk,fm->mk", self.rows[:plain] ** 2, 1 / local[:plain])
        index = np.arange(own)
        block[:, index, index] = alone + EASED
        index = np.arange(own, own + wide)
        block[:, index, :own] = self.rows[plain:].transpose(1, 0, 2)
        block[:, index, index] = -local[plain:].T
        if self.cones:
            block[:, own + wide : -1, :own] = self.curved.transpose(1, 0, 2)
            # W^2 = size^2 * (2 * point * point' - mirror); the product has an unknown of its own.
            mirror = np.diag([1.0, -1.0, -1.0])
            bent = slice(own + wide, own + wide + WIDE)
            block[:, bent, bent] = mirror * self._size[:, :, None] ** 2 - EASED * np.eye(WIDE)
            block[:, -1, bent] = -(2**0.5) * self._size * self._point
            block[:, bent, -1] = block[:, -1, bent]
            block[:, -1, -1] = 1.0
        block[:, :own, own:] = block[:, own:, :own].transpose(0, 2, 1)
        border = np.zeros((self.jobs, size, shared + 1))
        border[:, own : own + wide, 0] = self.of_t[plain:].T
        for model in range(shared):
            border[:, model, model + 1] = self.coupling[model]
        self._local, self._border = local, border
        self._inverse = np.linalg.inv(block)
        self._by = self._inverse @ border
        corner = np.diag(np.append(EASED, -self._shared_weight))
        self._corner = np.linalg.inv(corner - np.einsum("msi,msj->ij", border, self._by))

    def _solved(self, of_x: Floats, of_z: Floats) -> tuple[Floats, Floats]:
        """Return x and z for which G' z = `of_x` and G x - W^2 z = `of_z`, nearly."""
        local, shared, bent = self._split(of_z)
        plain, own = self._plain, self.own
        alone = np.einsum("fmk,fm->mk", self.rows[:plain], local[:plain] / self._local[:plain])
        parts = [of_x[:-1].reshape(self.jobs, own) + alone, local[plain:].T]
        if self.cones:
            parts += [bent, np.zeros((self.jobs, 1))]
        right = np.concatenate(parts, axis=1)
        first = np.einsum("mst,mt->ms", self._inverse, right)
        outer = np.append(of_x[-1], shared) - np.einsum("msi,ms->i", self._border, first)
        common = self._corner @ outer
        found = first - self._by @ common
        x = found[:, :own]
        z = np.empty_like(local)
        z[:plain] = np.einsum("fmk,mk->fm", self.rows[:plain], x) - local[:plain]
        z[:plain] /= self._local[:plain]
        z[plain:] = found[:, own : own + self.forms - plain].T
        bent = found[:, own + self.forms - plain :][:, :WIDE]
        return np.append(x.ravel(), common[0]), np.concatenate(
            [z.ravel(), common[1:], bent.ravel()]
        )

    def _newton(self, of_x: Floats, of_z: Floats) -> tuple[Floats, Floats]:
        """Return x and z for which G' z = `of_x` and G x - W^2 z = `of_z`."""
        x, z = np.zeros_like(of_x), np.zeros_like(of_z)
        missing_x, missing_z, before = of_x, of_z, np.inf
        for _ in range(REFINED):
            more, more_z = self._solved(missing_x, missing_z)
            new_x = of_x - self._transposed_times(z + more_z)
            new_z = of_z - self._times(x + more) + self._scaled(self._scaled(z + more_z))
            error = max(float(np.abs(new_x).max()), float(np.abs(new_z).max()))
            if error >= before:
                break
            x, z, missing_x, missing_z = x + more, z + more_z, new_x, new_z
            if error < EXACT or error > before / 6:
                break
            before = error
        return x, z

    def solve(self) -> Floats:
        """Return the variables of the jobs, a row for each. ArithmeticError: there are none."""
        self._flat = np.ones(self.linear)
        self._point, self._size = np.tile([1.0, 0, 0], (self.cones, 1)), np.ones((self.cones, 1))
        self._factor()
        nothing = np.zeros_like(self.free)
        x, z = self._newton(np.zeros_like(self.cost), self.free)
        s = self._into_cone(-z)
        z = self._into_cone(self._newton(-self.cost, nothing)[1])
        tau = kappa = 1.0
        degree = self.linear + self.cones + 1
        best, solution = np.inf, x
        for _ in range(MOST_STEPS):
            of_x = -self._transposed_times(z) - self.cost * tau
            of_z = s + self._times(x) - self.free * tau
            of_t = kappa + self.cost @ x + self.free @ z
            gap = float(s @ z)
            error = self._error((x, s, z), tau, np.append(of_x, of_z))
            if error < best:
                best, solution = error, x / (self._columns * tau)
            if error < NEAR or not self._inside(s, z) or error > WORSE * best:
                break
            mu = (gap + kappa * tau) / degree
            self._scale(s, z)
            self._factor()
            scaled = self._scaled(z)
            x1, z1 = self._newton(-self.cost, self.free)
            x2, z2 = self._newton(of_x, s - of_z)
            below = kappa / tau - self.cost @ x1 - self.free @ z1
            d_tau = float((of_t - kappa + self.cost @ x2 + self.free @ z2) / below)
            d_kappa = -kappa - kappa / tau * d_tau
            of_dual = self._scaled(z2 + d_tau * z1)
            of_slack = -of_dual - scaled
            lines = np.array([[tau, d_tau], [kappa, d_kappa]])
            centring = (1 - self._length(scaled, (of_slack, of_dual), lines)) ** 3
            centring = min(1.0, max(LEAST_CENTRING, centring))

            bend = self._product(scaled, scaled) + self._product(of_slack, of_dual)
            bend = self._quotient(scaled, bend - centring * mu * self._identity())
            kept = 1 - centring
            x2, z2 = self._newton(kept * of_x, self._scaled(bend) - kept * of_z)
            of_kappa = kappa * tau + d_kappa * d_tau - centring * mu
            both = self.cost @ x2 + self.free @ z2
            d_tau = float((kept * of_t - of_kappa / tau + both) / below)
            x2, z2 = x2 + d_tau * x1, z2 + d_tau * z1
            of_dual = self._scaled(z2)
            of_slack = -(bend + of_dual)
            d_kappa = -(of_kappa + kappa * d_tau) / tau
            lines = np.array([[tau, d_tau], [kappa, d_kappa]])
            length = self._length(scaled, (of_slack, of_dual), lines) * KEPT
            x, z, s = x + length * x2, z + length * z2, s + length * self._scaled(of_slack)
            tau, kappa = tau + length * d_tau, kappa + length * d_kappa
        if best > ROUGH:
            raise ArithmeticError(f"no solution was found: errors of {best:.2g}")
        return solution[:-1].reshape(self.jobs, self.own)

    def _error(self, at: tuple[Floats, Floats, Floats], tau: float, off: Floats) -> float:
        """Return how far a point is from the optimum, or with `off` from what is allowed."""
        x, s, z = at
        duals = len(x)
        size_x, size_s, size_z = (float(np.linalg.norm(each)) for each in at)
        most_x = max(float(np.linalg.norm(self.cost)) + size_z, 1.0)
        most_z = max(float(np.linalg.norm(self.free)) + size_x + size_s, 1.0)
        gap, value = float(s @ z), abs(float(self.cost @ x)) / tau
        return max(
            gap / value if value > 1 else gap,
            float(np.linalg.norm(off[:duals])) / most_x / tau,
            float(np.linalg.norm(off[duals:])) / most_z / tau,
        )

    def _inside(self, s: Floats, z: Floats) -> bool:
        linear = self.linear
        bent = [each[linear:].reshape(-1, WIDE) for each in (s, z)]
        return bool(
            (s[:linear] > 0).all()
            and (z[:linear] > 0).all()
            and all((_lorentz(each, each) > 0).all() for each in bent)
        )


def _lorentz(u: Floats, v: Floats) -> Floats:
    found: Floats = u[:, 0] * v[:, 0] - (u[:, 1:] * v[:, 1:]).sum(axis=1)
    return found
