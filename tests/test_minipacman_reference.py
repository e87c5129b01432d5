"""Compare the engine with a reference implementation of the rules in plain Python.

Both use the same map and the same random numbers; the reference computes the random numbers with Python integers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from tdvae.envs.minipacman import MODES, Cell, Games, Player, PlayerSettings, View
from tdvae.envs.minipacman.draws import spawn, splitmix64
from tdvae.envs.minipacman.maze import CELLS, MAP, WIDTH

Place = tuple[int, int]
STEPS: list[Place] = [(0, 0), (0, 1), (-1, 0), (0, -1), (1, 0)]
REVERSE = {1: 3, 2: 4, 3: 1, 4: 2}
FREE = [(r, c) for r, row in enumerate(MAP) for c, letter in enumerate(row) if letter == "."]
OPEN = frozenset(FREE)
REWARDS = {  # step, food, pill, ghost, death
    "regular": (0.0, 1.0, 2.0, 5.0, 0.0),
    "avoid": (0.1, -0.1, -5.0, -10.0, -20.0),
    "hunt": (0.0, 0.0, 1.0, 10.0, -20.0),
    "ambush": (0.0, -0.1, 0.0, 10.0, -20.0),
    "rush": (0.0, -0.1, 10.0, 0.0, 0.0),
}
LAYOUT = 2**23  # number of the first draw for the layout of a level


def ahead(place: Place, direction: int) -> Place:
    return place[0] + STEPS[direction][0], place[1] + STEPS[direction][1]


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


@dataclass
class Ghost:
    place: Place
    facing: int


@dataclass
class ReferenceGame:
    seed: int
    mode: str
    level: int
    max_frames: int
    frame: int = 0
    dead: bool = False
    truncated: bool = False
    events: Counter[str] = field(default_factory=Counter)  # counted, to check that the test covers them

    def __post_init__(self) -> None:
        self.lay_out()

    def uniform(self, number: int) -> float:
        index = self.frame * 2**24 + number
        bits = mix((mix(self.seed) + 0x9E3779B97F4A7C15 * (index + 1)) % 2**64)
        return (bits >> 11) / 2**53

    def uniform_int(self, limit: int, number: int) -> int:
        return int(self.uniform(number) * limit)

    def lay_out(self) -> None:
        self.power = self.level_frame = 0
        self.food = set(FREE)
        first = self.uniform_int(138, LAYOUT)
        second = (first + 1 + self.uniform_int(137, LAYOUT + 1)) % 138
        self.pills = {FREE[first], FREE[second]}
        self.pacman = FREE[self.uniform_int(138, LAYOUT + 2)]
        row, column = self.pacman
        safe = [place for place in FREE if max(abs(place[0] - row), abs(place[1] - column)) >= 5]
        self.ghosts: dict[int, Ghost] = {}
        for i in range(1 + (self.level - 1) // 2):
            place = safe[self.uniform_int(len(safe), LAYOUT + 3 + 2 * i)]
            exits = [direction for direction in (1, 2, 3, 4) if ahead(place, direction) in OPEN]
            self.ghosts[i] = Ghost(place, exits[self.uniform_int(len(exits), LAYOUT + 4 + 2 * i)])

    def next_level(self) -> None:
        self.level += 1
        self.events["level"] += 1
        self.lay_out()

    def goal(self) -> bool:
        return not {"regular": self.food, "avoid": self.food, "rush": self.pills}.get(self.mode, self.ghosts)

    def step(self, action: int) -> float:
        if self.dead or self.truncated:
            return 0.0
        for_step, for_food, for_pill, for_ghost, for_death = REWARDS[self.mode]
        self.frame += 1
        self.level_frame += 1
        self.power = max(0, self.power - 1)
        reward = for_step
        if ahead(self.pacman, action) in OPEN:
            self.pacman = ahead(self.pacman, action)
        if self.pacman in self.food:
            self.food.remove(self.pacman)
            reward += for_food
        if self.pacman in self.pills:
            self.pills.remove(self.pacman)
            self.power = 20
            reward += for_pill
        if not self.goal():
            event = self.ghosts_turn()
            reward += {"": 0.0, "ate": for_ghost, "died": for_death}[event]
            self.events[event] += 1
        if not self.dead and (self.goal() or (self.mode == "avoid" and self.level_frame == 128)):
            self.next_level()
        if not self.dead and self.frame >= self.max_frames:
            self.truncated = True
            self.events["truncated"] += 1
        return reward

    def ghosts_turn(self) -> str:
        for i in sorted(self.ghosts):
            ghost = self.ghosts[i]
            if ghost.place != self.pacman:
                speed = 0.5 + 0.1 * (self.level - 1)
                if self.uniform(3 * i) < (speed / 2 if self.power else speed):
                    ghost.facing = self.choose(i, ghost)
                    ghost.place = ahead(ghost.place, ghost.facing)
            if ghost.place == self.pacman:
                if self.power:
                    del self.ghosts[i]
                    return "ate"
                self.dead = True
                return "died"
        return ""

    def choose(self, i: int, ghost: Ghost) -> int:
        exits = [direction for direction in (1, 2, 3, 4) if ahead(ghost.place, direction) in OPEN]
        if len(exits) == 2:
            if ghost.facing in exits:
                return ghost.facing
            return next(direction for direction in exits if direction != REVERSE[ghost.facing])
        directions = [direction for direction in exits if direction != REVERSE[ghost.facing]]
        if not self.power and self.uniform(3 * i + 1) < 0.05:
            self.events["strayed"] += 1
            return directions[self.uniform_int(len(directions), 3 * i + 2)]
        down, right = self.pacman[0] - ghost.place[0], self.pacman[1] - ghost.place[1]
        alignment = [STEPS[direction][0] * down + STEPS[direction][1] * right for direction in directions]
        return directions[alignment.index(min(alignment) if self.power else max(alignment))]

    def look(self, place: Place) -> int:
        if place == self.pacman:
            return Cell.PACMAN
        if any(ghost.place == place for ghost in self.ghosts.values()):
            return Cell.EDIBLE if self.power else Cell.GHOST
        if place in self.pills:
            return Cell.PILL
        if place in self.food:
            return Cell.FOOD
        return Cell.EMPTY if place in OPEN else Cell.WALL

    def window(self, size: int) -> list[list[int]]:
        row, column = self.pacman
        reach = range(-(size // 2), size // 2 + 1)
        return [[self.look((row + i, column + j)) for j in reach] for i in reach]


def cells(places: set[Place]) -> list[int]:
    return sorted(row * WIDTH + column for row, column in places)


def assert_same(game: ReferenceGame, games: Games, n: int) -> None:
    """Compare all state variables of a game."""
    ghosts = {i: (int(cell), int(games.facing[i, n])) for i, cell in enumerate(games.ghosts[:, n]) if cell >= 0}
    assert ghosts == {i: (g.place[0] * WIDTH + g.place[1], g.facing) for i, g in game.ghosts.items()}
    numbers = (games.pacman[n], games.power[n], games.level[n], games.frame[n], games.level_frame[n])
    assert numbers == (*cells({game.pacman}), game.power, game.level, game.frame, game.level_frame)
    board = games.board[n]
    assert np.flatnonzero(board >= Cell.FOOD).tolist() == cells(game.food)
    assert np.flatnonzero(board == Cell.PILL).tolist() == cells(game.pills)
    left = (games.food_left[n], games.pills_left[n], games.ghosts_left[n])
    assert left == (len(game.food), len(game.pills), len(game.ghosts))
    assert (games.terminated[n], games.truncated[n]) == (game.dead, game.truncated)


def leave_little_food(games: Games, references: list[ReferenceGame]) -> None:
    """Keep food in the upper left corner only, so that some games finish a level within the test."""
    keep = {place for place in FREE if place[0] < 4 and place[1] < 6}
    for n, game in enumerate(references):
        game.food = keep | game.pills
        games.food_left[n] = len(game.food)
        for row, column in OPEN - game.food:
            games.board[n, row * WIDTH + column] = Cell.EMPTY


def compare(mode: str, level: int, reckless: bool) -> Counter[str]:
    """Compare 10 games for 200 steps, half of them with the player and half with random actions; returns the events."""
    seeds, steps = spawn(level + 100 * reckless, 10), 200
    games = Games(seeds, mode, level, max_frames=160)
    references = [ReferenceGame(int(seed), mode, level, max_frames=160) for seed in seeds]
    leave_little_food(games, references)
    player, view = Player(10, PlayerSettings(danger=0 if reckless else 4)), View(5)
    random = np.random.default_rng(level)
    for step in range(steps):
        actions = player(games)
        actions[5:] = random.integers(0, 5, 5)
        rewards = games.step(actions).rewards
        assert rewards.tolist() == [game.step(int(a)) for game, a in zip(references, actions, strict=True)]
        shown = view(games).tolist()
        for n, game in enumerate(references):
            if game.frame == games.frame.max() or step % 100 == 0:  # games that are over do not change
                assert_same(game, games, n)
                assert shown[n] == game.window(5)
    return sum((game.events for game in references), Counter())


@pytest.mark.parametrize("mode", MODES)
def test_engine_equals_the_reference(mode: str) -> None:
    events = sum((compare(mode, level, reckless) for level in (1, 4, 9) for reckless in (False, True)), Counter[str]())
    # The comparison covers an event only if it took place.
    assert min(events[event] for event in ("level", "died", "ate", "strayed")) > 3
    assert events["truncated"] > 0 or mode == "hunt"


def test_random_numbers_are_splitmix64() -> None:
    # The published outputs of splitmix64 for seed 1234567.
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert splitmix64(np.array([1234567], np.uint64), np.arange(5, dtype=np.uint64)).tolist() == expected


def test_reference_map_equals_the_map_of_the_engine() -> None:
    games = Games([0])
    assert sum(len(row) for row in MAP) == CELLS
    assert np.argwhere(games.food[0]).tolist() == [list(place) for place in FREE]
