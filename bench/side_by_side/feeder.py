"""Sends mail for many domains by SMTP, over some connections. Its speed is not measured."""

import smtplib
import threading

from side_by_side.mail import SENDER, Mail, letter


def feed(port: int, mail: Mail, sessions: int) -> None:
    """Send all of the mail to a port of 127.0.0.1. Raises the first SMTPException of any connection."""
    recipients, taking, failures = mail.recipients(), threading.Lock(), list[Exception]()
    text = letter(mail.size)

    def send() -> None:
        try:
            with smtplib.SMTP("127.0.0.1", port, "bench.example") as client:
                while not failures:
                    with taking:
                        recipient = next(recipients, None)
                    if recipient is None:
                        return
                    client.sendmail(SENDER, [recipient], text)
        except (OSError, smtplib.SMTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=send) for _ in range(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
