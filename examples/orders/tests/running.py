from orders import InvoiceService


class RunningService(InvoiceService):
    """The service, and what tests ask of it."""

    def run_until(self, count: int) -> None:
        """Until it has handled so many orders."""
        while count > 0:
            count -= self.run_once(timeout=0.2)
        assert count == 0
