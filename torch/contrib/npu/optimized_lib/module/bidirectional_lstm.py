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
        # Both directions are one operator, which is what torch.nn.LSTM calls for a bidirectional layer.
        state = inputs.new_zeros(2, inputs.shape[1], self.fw_rnn.hidden_size)
        weights = [*self.fw_rnn.all_weights[0], *self.bw_rnn.all_weights[0]]
        return torch._VF.lstm(inputs, (state, state), weights, True, 1, 0.0, self.training, True, False)[0]
