"""Commands about the champion: promote, rollback, nights."""

from dataclasses import asdict

import click

from flows.cli.session import Session, cli, command


@command(cli, "promote")
@click.argument("version")
@click.option("--reason", required=True, help="Why; recorded with the version.")
def promote(session: Session, version: str, reason: str) -> None:
    """Make VERSION (a number, or name/number) the champion, whatever comparisons say."""
    from tasks.promotion import promote_by_hand

    event = promote_by_hand(session.config, version, reason)
    before = f"in place of version {event.previous}" if event.previous else "the first one"
    told = f"{event.model}/{event.version} is champion, {before}"
    session.finish(asdict(event), told if event.at else f"{event.model}/{event.version} was champion already")


@command(cli, "rollback")
@click.option("--reason", required=True, help="Why; recorded with both versions.")
def rollback(session: Session, reason: str) -> None:
    """Make the champion before the present one champion again."""
    from tasks.promotion import roll_back_by_hand

    event = roll_back_by_hand(session.config, reason)
    session.finish(asdict(event), f"{event.model}/{event.version} is champion again, in place of version {event.previous}")


@command(cli, "nights")
@click.option("--accept", metavar="NIGHT", help="Take a regressed night (or its beginning) as the new state of things.")
@click.option("--reason", help="Why; recorded with the night.")
def nights(session: Session, accept: str | None, reason: str | None) -> None:
    """List the nightly evaluations, newest first: state, scores, what fell."""
    from flows.cli.night_text import nights_table
    from slmsearch.evaluate.nights import load_nights
    from tasks.nights import accept_night
    from tasks.paths import nights_dir

    if accept is not None:
        from tasks.promotion import require_reason, who

        night = accept_night(session.config, accept, require_reason(reason or ""), who())
        session.finish(night.to_dict(), f"night {night.night} is accepted: the next nights are compared with it")
        return
    found, odd = load_nights(nights_dir(session.config))
    for line in odd:
        session.say(line)
    text = nights_table(found).to_text() if found else "no night yet; `slmsearch run nightly` makes one"
    session.finish({"nights": [night.to_dict() for night in found], "odd": odd}, text)
