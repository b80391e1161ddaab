"""The process that sends messages, without the server beside it: settings are the environment's."""

from queue_operator.bootstrap import send_messages
from queue_operator.settings import Settings
from queue_operator.webhooks.figures import Vitals

if __name__ == "__main__":
    send_messages(Settings(), Vitals())
