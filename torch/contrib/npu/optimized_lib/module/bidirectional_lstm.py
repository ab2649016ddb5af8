"""An LSTM in both directions."""

import torch


class BiLSTM(torch.nn.Module):
    """Two LSTMs of one layer over a sequence, one from its end, with their results side by side.

    Args:
        input_size: features of a step.
        hidden_size: features of each direction's state.

    Shape:
        (steps, batch, input_size) to (steps, batch, 2 * hidden_size).
    """

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.fw_rnn = torch.nn.LSTM(input_size, hidden_size)
        self.bw_rnn = torch.nn.LSTM(input_size, hidden_size)

    def forward(self, inputs):
        forwards, _ = self.fw_rnn(inputs)
        backwards, _ = self.bw_rnn(inputs.flip(0))
        return torch.cat([forwards, backwards.flip(0)], 2)
