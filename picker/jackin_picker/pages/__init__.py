"""The screens besides the prompt: what waits, runs, ran; grants, credentials, rules."""

from typing import Final

from ..tabs import Page
from .credentials import CredentialsPage
from .grants import GrantsPage
from .history import HistoryPage
from .output import OutputScreen as OutputScreen
from .page import PageScreen as PageScreen
from .rules import RulesPage
from .running import RunningPage
from .waiting import WaitingPage

PAGES: Final[dict[Page, type[PageScreen]]] = {
    Page.WAITING: WaitingPage,
    Page.RUNNING: RunningPage,
    Page.HISTORY: HistoryPage,
    Page.GRANTS: GrantsPage,
    Page.CREDENTIALS: CredentialsPage,
    Page.RULES: RulesPage,
}
