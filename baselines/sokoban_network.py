"""The network of the Sokoban speedrun: what it sees of a board, how it plays, and the file that it is stored in.

A residual convolutional network over the inside of a 10x10 board. It chooses single moves without search.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from agentgym_flow.envs.sokoban.level import (
    ACTIONS,
    BOX,
    CODE_OF_BITS,
    CODE_PLAYER,
    LLM_SYMBOLS,
    PLAYER,
    PLAYER_SHIFT,
    TARGET,
    WALL,
    Level,
)
from agentgym_flow.errors import BadData
from agentgym_flow.policies import PolicyInput, PolicyOutput

Codes = npt.NDArray[np.uint8]  # cells as `agentgym_flow/SokobanGrid-v0` codes them: [boards, 64], without the border
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

SIDE, INSIDE = 10, 8
BITS_OF_CODE = {code: bits for bits, code in CODE_OF_BITS.items()}
CODE_OF_SYMBOL = {LLM_SYMBOLS[bits]: code for bits, code in CODE_OF_BITS.items()}


class Conv(nn.Module):
    """A 3x3 convolution whose weights are one matrix, outputs x inputs, as Muon needs."""

    def __init__(self, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        self.shape = (outputs, inputs, 3, 3)
        self.matrix = nn.Parameter(torch.randn(outputs, inputs * 9) * gain * (inputs * 9) ** -0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution of `x`, [boards, inputs, 8, 8]; all planes are 0 beyond the edge, like walls."""
        return F.conv2d(x, self.matrix.view(self.shape), self.bias, padding=1)


class Net(nn.Module):
    """Residual blocks over the board, read out at the player's cell, because actions depend on its surroundings."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        bits = torch.tensor([BITS_OF_CODE[code] for code in range(len(BITS_OF_CODE))])
        planes = torch.stack([bits & WALL == 0, bits & TARGET > 0, bits & BOX > 0, bits & PLAYER > 0], 1).float()
        self.planes: torch.Tensor
        self.register_buffer("planes", planes, persistent=False)
        self.stem = Conv(4, channels)
        self.first = nn.ModuleList(Conv(channels, channels, 1.4) for _ in range(blocks))
        self.second = nn.ModuleList(Conv(channels, channels, 0.1) for _ in range(blocks))
        self.mix = nn.Linear(2 * channels, 2 * channels)
        self.head = nn.Linear(2 * channels, len(ACTIONS) + 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits, [boards, 4], and values, [boards], of boards, uint8[boards, 64]."""
        board = self.planes[codes.long()].view(-1, INSIDE, INSIDE, 4).permute(0, 3, 1, 2)
        x = self.stem(board)
        for first, second in zip(self.first, self.second, strict=True):
            x = x + second(F.relu(first(F.relu(x))))
        x = F.relu(x)
        here = (x * board[:, 3:]).sum((2, 3))
        out = self.head(F.relu(self.mix(torch.cat([here, x.mean((2, 3))], 1)))).float()
        return out[:, :-1], out[:, -1]

    def get_output_embeddings(self) -> nn.Module:
        """Return the layer that Muon leaves to AdamW."""
        return self.head


def infer(net: Net, codes: Codes) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probabilities of actions and the values of boards, computed in bfloat16."""
    device = net.head.weight.device
    with torch.autocast(device.type, torch.bfloat16):
        logits, values = net(torch.from_numpy(codes).to(device))
    return logits.log_softmax(-1), values


@torch.no_grad()
def act(net: Net, codes: Codes) -> tuple[Ints, Floats, Floats]:
    """Return a sampled action for each board, its log-probability, and the value."""
    logprobs, values = infer(net, codes)
    actions = torch.multinomial(logprobs.exp(), 1)
    return actions[:, 0].cpu().numpy(), logprobs.gather(1, actions)[:, 0].cpu().numpy(), values.cpu().numpy()


def _symmetries() -> tuple[Ints, Ints]:
    """Return the source cell of each cell of the 8 symmetric boards, [8, 64], and the image of each action, [8, 4]."""
    grid = np.arange(INSIDE * INSIDE).reshape(INSIDE, INSIDE)
    turned = [np.rot90(flipped, turns) for flipped in (grid, grid[:, ::-1]) for turns in range(4)]
    steps = [(-1, 0), (1, 0), (0, -1), (0, 1)]
    becomes = [
        [
            steps.index(tuple(np.argwhere(t == grid[3 + r, 3 + c])[0] - np.argwhere(t == grid[3, 3])[0]))
            for r, c in steps
        ]
        for t in turned
    ]
    return np.array([image.ravel() for image in turned]), np.array(becomes)


CELLS_OF, ACTIONS_OF = _symmetries()


def inside(grids: npt.NDArray[np.uint8]) -> Codes:
    """Return the cells inside the border of 10x10 boards."""
    return grids.reshape(-1, SIDE, SIDE)[:, 1:-1, 1:-1].reshape(-1, INSIDE * INSIDE)


def level_of(grid: npt.NDArray[np.uint8]) -> Level:
    """Return the state of a board as a level."""
    codes = grid.ravel().tolist()
    player = next(cell for cell, code in enumerate(codes) if code >= CODE_PLAYER)
    codes[player] -= PLAYER_SHIFT
    return Level(SIDE, SIDE, bytes(BITS_OF_CODE[code] for code in codes), player)


# ---------------------------------------------------------------- the policy and its file
class NetworkPolicy:
    """The trained network as a policy of the package, which parses the board from the text.

    Args:
        net: the network.
        way: `"sampled"`, `"greedy"`, or `"careful"`, which averages over the eight orientations, and in a state visited
            before in the episode avoids actions tried there if possible.
    """

    def __init__(self, net: Net, way: str) -> None:
        self.name, self._net, self._way = f"speedrun-{way}", net, way

    @torch.no_grad()
    def act(self, inputs: Sequence[PolicyInput]) -> list[PolicyOutput]:
        """Return the actions."""
        grids = [
            [CODE_OF_SYMBOL[symbol] for symbol in policy_input.observation if not symbol.isspace()]
            for policy_input in inputs
        ]
        codes = inside(np.array(grids, np.uint8))
        if self._way == "careful":
            turned = [infer(self._net, codes[:, cells])[0].cpu().numpy() for cells in CELLS_OF]
            odds = np.mean([logprobs[:, to] for logprobs, to in zip(turned, ACTIONS_OF, strict=True)], axis=0)
        else:
            odds = infer(self._net, codes)[0].cpu().numpy()
        return [
            PolicyOutput(ACTIONS[self._choice(policy_input, np.exp(row))])
            for policy_input, row in zip(inputs, odds, strict=True)
        ]

    def _choice(self, policy_input: PolicyInput, odds: Floats) -> int:
        if self._way == "sampled":
            return min(int((odds.cumsum() < policy_input.rng.uniform()).sum()), len(ACTIONS) - 1)
        here, tried = policy_input.info["state_key"], set[str]()
        if self._way == "careful":
            tried = {turn.action for turn in policy_input.episode.turns if turn.state_key == here}
        return int(np.argmax(odds - np.array([word in tried for word in ACTIONS])))


def read_checkpoint(file: Path, needs: Iterable[str]) -> dict[str, Any]:
    """Return the content of a checkpoint, on the CPU. Raises `BadData` if it cannot be read or lacks one of `needs`."""
    try:
        # Always on the CPU: cloning makes arrays of its states, and networks and optimizers move what they load.
        found = torch.load(file, weights_only=True, map_location="cpu")
    except (OSError, RuntimeError, EOFError, UnpicklingError, ValueError, LookupError) as error:
        raise BadData(f"{file} is damaged, or not a checkpoint of this script ({type(error).__name__})") from error
    if missing := [name for name in needs if not isinstance(found, dict) or name not in found]:
        raise BadData(f"{file} is not a checkpoint of this version of the script: it lacks {', '.join(missing)}")
    return dict(found)
